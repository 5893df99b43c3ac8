# Install rules and the CMake package that find_package(kwker) finds.
include(CMakePackageConfigHelpers)
install(TARGETS kwker EXPORT kwker-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/kwker DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT kwker-targets NAMESPACE kwker:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kwker)
configure_package_config_file(cmake/kwker-config.cmake.in kwker-config.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kwker)
write_basic_package_version_file(kwker-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/kwker-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/kwker-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kwker)

# The installed package must serve a project of its own. A sanitised library would ask the consumer for its flags.
if(KWKER_BUILD_TESTS AND NOT KWKER_SANITIZE)
  add_test(NAME package.consumer
           COMMAND ${CMAKE_COMMAND} -DBUILD_DIR=${CMAKE_BINARY_DIR} -DWORK_DIR=${CMAKE_BINARY_DIR}/consumer
                   -DCOMPILER=${CMAKE_CXX_COMPILER} -DGENERATOR=${CMAKE_GENERATOR}
                   -P ${PROJECT_SOURCE_DIR}/tests/consumer/run.cmake)
  set_tests_properties(package.consumer PROPERTIES LABELS package TIMEOUT 300)
endif()
