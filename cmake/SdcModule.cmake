# SPDX-License-Identifier: Apache-2.0
# The two functions every CMakeLists.txt below src/ and tests/ is written with.

# Flags that every translation unit of the project gets. Numerics flags are part of correctness:
# contraction is off by name, and base/guard.h refuses fast-math at compile time.
add_library(sdc_flags INTERFACE)
target_compile_features(sdc_flags INTERFACE c_std_17)
target_compile_definitions(sdc_flags INTERFACE _GNU_SOURCE=1 SDC_VERSION="${PROJECT_VERSION}")
target_include_directories(sdc_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_options(sdc_flags INTERFACE
    -ffp-contract=off -fno-strict-aliasing
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
    -Wundef -Wformat=2 -Wwrite-strings
    $<$<BOOL:${SDC_WERROR}>:-Werror>
    $<$<C_COMPILER_ID:Clang>:-Wno-gnu-zero-variadic-macro-arguments>)
if(SDC_SANITIZE)
    target_compile_options(sdc_flags INTERFACE -fsanitize=${SDC_SANITIZE} -fno-sanitize-recover=all
                                               -fno-omit-frame-pointer)
    target_link_options(sdc_flags INTERFACE -fsanitize=${SDC_SANITIZE})
endif()

# sdc_module(NAME SOURCES a.c ... [DEPS module ...] [LIBS external-target ...])
# One layer (a folder of src/): a static library sdc_NAME, and its objects for libsdclab.
function(sdc_module name)
    cmake_parse_arguments(M "" "" "SOURCES;DEPS;LIBS" ${ARGN})
    add_library(sdc_${name}_obj OBJECT ${M_SOURCES})
    set_target_properties(sdc_${name}_obj PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(sdc_${name}_obj PRIVATE sdc_flags ${M_LIBS})
    add_library(sdc_${name} STATIC $<TARGET_OBJECTS:sdc_${name}_obj>)
    target_link_libraries(sdc_${name} PRIVATE sdc_flags)
    foreach(dep IN LISTS M_DEPS)
        target_link_libraries(sdc_${name} PUBLIC sdc_${dep})
    endforeach()
    target_link_libraries(sdc_${name} PUBLIC ${M_LIBS})
endfunction()

# Seconds after which a test is taken to hang; sanitizers make programs several times slower.
set(SDC_TEST_TIMEOUT 120)
if(SDC_SANITIZE)
    set(SDC_TEST_TIMEOUT 400)
endif()

# sdc_test(NAME SOURCES a.c ... [DEPS module ...] [LIBS target ...] [LABELS l ...] [TIMEOUT s] [ARGS ...])
# A cmocka program, registered with CTest; it runs in a scratch folder of its own.
function(sdc_test name)
    cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;DEPS;LIBS;LABELS;ARGS;ENVIRONMENT" ${ARGN})
    add_executable(${name} ${T_SOURCES})
    target_link_libraries(${name} PRIVATE sdc_flags sdc_harness)
    foreach(dep IN LISTS T_DEPS)
        target_link_libraries(${name} PRIVATE sdc_${dep})
    endforeach()
    target_link_libraries(${name} PRIVATE ${T_LIBS} PkgConfig::CMOCKA)
    set(scratch ${CMAKE_BINARY_DIR}/scratch/${name})
    file(MAKE_DIRECTORY ${scratch})
    add_test(NAME ${name} COMMAND ${name} ${T_ARGS} WORKING_DIRECTORY ${scratch})
    if(NOT T_LABELS)
        set(T_LABELS unit)
    endif()
    if(NOT T_TIMEOUT)
        set(T_TIMEOUT ${SDC_TEST_TIMEOUT})
    endif()
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT}
        ENVIRONMENT "OMP_NUM_THREADS=1;OPENBLAS_NUM_THREADS=1;SDC_SOURCE_DIR=${PROJECT_SOURCE_DIR};SDC_BINARY_DIR=${CMAKE_BINARY_DIR};SDCLAB_HDF5_HELPER=${CMAKE_BINARY_DIR}/sdclab-hdf5;SDC_PYTHON=${SDC_PYTHON};${T_ENVIRONMENT}")
endfunction()

# sdc_script_test(NAME SCRIPT path [ARGS ...] [LABELS l ...] [TIMEOUT s])
# A Python or shell script as a test; same scratch folder and environment. Exit 77 means skipped.
function(sdc_script_test name)
    cmake_parse_arguments(T "" "TIMEOUT;SCRIPT" "ARGS;LABELS;ENVIRONMENT" ${ARGN})
    set(scratch ${CMAKE_BINARY_DIR}/scratch/${name})
    file(MAKE_DIRECTORY ${scratch})
    if(T_SCRIPT MATCHES "\\.py$")
        set(run ${SDC_PYTHON})
    else()
        set(run bash)
    endif()
    add_test(NAME ${name} COMMAND ${run} ${CMAKE_CURRENT_SOURCE_DIR}/${T_SCRIPT} ${T_ARGS}
             WORKING_DIRECTORY ${scratch})
    if(NOT T_TIMEOUT)
        set(T_TIMEOUT ${SDC_TEST_TIMEOUT})
    endif()
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT} SKIP_RETURN_CODE 77
        ENVIRONMENT "OMP_NUM_THREADS=1;OPENBLAS_NUM_THREADS=1;PYTHONDONTWRITEBYTECODE=1;PYTHONPATH=${PROJECT_SOURCE_DIR}/tests/harness;SDC_SOURCE_DIR=${PROJECT_SOURCE_DIR};SDC_BINARY_DIR=${CMAKE_BINARY_DIR};SDCLAB_HDF5_HELPER=${CMAKE_BINARY_DIR}/sdclab-hdf5;SDCLAB=${CMAKE_BINARY_DIR}/sdclab;SDC_PYTHON=${SDC_PYTHON};SDC_SANITIZE=${SDC_SANITIZE};${T_ENVIRONMENT}")
endfunction()
