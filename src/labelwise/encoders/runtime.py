"""ONNX Runtime, imported in one place: silent, on one thread, and with its telemetry off."""

import os
from importlib import import_module
from importlib.metadata import version
from typing import Any

SILENT = 4  # what goes wrong is raised, not printed
BESIDE = "session.model_external_initializers_file_folder_path"  # where other files of an ONNX file are looked for


def onnxruntime() -> Any:
    """Return the module ``onnxruntime`` with telemetry off.

    Since version 1.29 its builds for Linux report to Microsoft and keep a file in the user's cache, unless this variable is set
    before the import. The function does the same on Windows.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    module = import_module("onnxruntime")
    module.disable_telemetry_events()
    return module


def runtime_name() -> str:
    """Return the name and version of ONNX Runtime without importing it."""
    return f"onnxruntime {version('onnxruntime')}"


def open_session(content: bytes) -> Any:
    """Return a session on one thread for the content of an ONNX file; several threads may use it at once."""
    module = onnxruntime()
    options = module.SessionOptions()
    options.log_severity_level = SILENT
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry(
        BESIDE, os.devnull
    )  # which is no folder: the content may name no file of this machine
    return module.InferenceSession(content, options, providers=["CPUExecutionProvider"])
