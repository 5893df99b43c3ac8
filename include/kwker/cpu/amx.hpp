// Whether AMX can be trusted on this machine.
#pragma once

namespace kwker {

/// True if the CPU and the operating system have AMX tiles with int8 and bf16, the kernel grants this process their
/// use, and a self-test finds the results of both multiplications equal, bit for bit, to their definitions. Asked once.
bool amx_usable();

}  // namespace kwker
