// The Python extension module kwker._torch: views of torch tensors. The only file of this project that knows libtorch.
#include <ATen/core/Tensor.h>
#include <Python.h>
#include <torch/csrc/autograd/python_variable.h>

#include <exception>
#include <memory>
#include <string>

#include "tensor_capsule.hpp"

namespace {

using kwker::python::kTensorCapsuleName;
using kwker::python::TensorHolder;

struct TorchTensorHolder : TensorHolder {
  at::Tensor tensor;
};

bool to_dtype(at::ScalarType type, kwker::DType* out) {
  switch (type) {
    case at::kFloat:
      *out = kwker::DType::kFloat32;
      return true;
    case at::kHalf:
      *out = kwker::DType::kFloat16;
      return true;
    case at::kBFloat16:
      *out = kwker::DType::kBFloat16;
      return true;
    default:
      return false;
  }
}

void destroy_capsule(PyObject* capsule) {
  delete static_cast<TensorHolder*>(PyCapsule_GetPointer(capsule, kTensorCapsuleName));
}

PyObject* make_view(const at::Tensor& given) {
  if (given.layout() != at::kStrided) {
    PyErr_SetString(PyExc_ValueError, "expected a dense tensor, got a sparse or otherwise special one");
    return nullptr;
  }
  if (!given.device().is_cpu()) {
    PyErr_Format(PyExc_ValueError, "expected a tensor on the cpu, got one on %s", given.device().str().c_str());
    return nullptr;
  }
  auto holder = std::make_unique<TorchTensorHolder>();
  if (!to_dtype(given.scalar_type(), &holder->view.dtype)) {
    PyErr_Format(PyExc_TypeError, "expected float32, float16 or bfloat16, got %s", at::toString(given.scalar_type()));
    return nullptr;
  }
  holder->tensor = given.resolve_neg();  // a lazily negated tensor holds other numbers than it stands for
  if (holder->tensor.numel() > 0 && holder->tensor.const_data_ptr() == nullptr) {
    PyErr_SetString(PyExc_ValueError, "expected a tensor with memory, got one whose storage is empty");
    return nullptr;
  }
  holder->view.data = static_cast<const std::byte*>(holder->tensor.const_data_ptr());
  holder->view.shape = holder->tensor.sizes().vec();
  holder->view.strides = holder->tensor.strides().vec();
  PyObject* capsule = PyCapsule_New(static_cast<TensorHolder*>(holder.get()), kTensorCapsuleName, destroy_capsule);
  if (capsule != nullptr) holder.release();
  return capsule;
}

PyObject* view(PyObject* /*module*/, PyObject* object) {
  if (!THPVariable_Check(object)) {
    return PyErr_Format(PyExc_TypeError, "expected a torch.Tensor, got %s", Py_TYPE(object)->tp_name);
  }
  try {
    return make_view(THPVariable_Unpack(object));
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

PyMethodDef methods[] = {
    {"view", view, METH_O, "A capsule with a view of the tensor, which it keeps alive."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_torch", nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__torch() { return PyModule_Create(&module); }
