"""The compiled ingest core. It is optional: without a compiler its pure-Python twin reads."""

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
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
