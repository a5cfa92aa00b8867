"""The compiled parts, ingest and replay. Optional: without a compiler their twins in Python run."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "htk._kineto",
            ["native/kineto.cpp"],
            language="c++",
            extra_compile_args=["-std=c++17", "-O3", "-fvisibility=hidden"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            optional=True,
        ),
        Extension(
            "htk._replay",
            ["native/replay.cpp"],
            language="c++",
            extra_compile_args=["-std=c++17", "-O3", "-fvisibility=hidden"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            optional=True,
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
