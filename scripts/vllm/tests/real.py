"""The serving classes of real vLLM packages, without what they serve with.

fetch-packages has unpacked the Python files. The serving modules run as they are. What else they import, of vLLM or of other
packages, is a stand-in that bears whatever is done to it while they are imported; classes of protocol modules have the
members that the real ones have, read in their source.
"""

import ast
import importlib.util
import json
import os
import re
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

PACKAGES = Path(os.environ.get("VLLM_PACKAGES") or Path(__file__).resolve().parents[3] / ".vllm-packages")
PINS = Path(__file__).with_name("packages.txt")

REAL = {
    "vllm.entrypoints.openai.chat_completion.serving",
    "vllm.entrypoints.openai.chat_completion.stream_processor",
    "vllm.entrypoints.openai.completion.serving",
    "vllm.entrypoints.anthropic.serving",
}
# Packages that those import, which the machine at hand may have or not.
FOREIGN = ("fastapi", "jinja2", "openai")


def versions():
    """The versions that fetch-packages fetches."""
    return re.findall(r"^vllm.*==(\S+)$", PINS.read_text(), re.M)


class Lenient(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __or__(cls, other):
        return cls

    __ror__ = __or__


class Anything(metaclass=Lenient):
    """A class, or a value of which nothing is known: it is false and empty, and so is all that it has or answers."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *args, **kwargs):
        return Anything()

    def __iter__(self):
        return iter(())

    def __bool__(self):
        return False


class Model:
    """What pydantic makes of a class: members by name, those not given by their default, and JSON in the order in which the
    class has them."""

    model_fields = {}  # (default, annotation) by name
    kinds = {}  # all classes by name

    def __init__(self, **members):
        self.__dict__.update(members)
        self.__dict__["given"] = set(members)

    def __getattr__(self, name):
        if name.startswith("__") or name not in self.model_fields:
            raise AttributeError(name)
        return self.model_fields[name][0]

    def __setattr__(self, name, value):
        self.__dict__[name] = value
        self.given.add(name)

    def model_dump(self, exclude_unset=False, exclude_none=False):
        names = [name for name in self.model_fields if name in self.given or not exclude_unset]
        members = {name: plain(getattr(self, name), exclude_unset, exclude_none) for name in names}
        return {name: value for name, value in members.items() if value is not None or not exclude_none}

    def model_dump_json(self, **exclude):
        return json.dumps(self.model_dump(**exclude), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def model_validate_json(cls, text):
        return cls.of(json.loads(text))

    @classmethod
    def of(cls, members):
        return cls(**{name: cls.member(name, value) for name, value in members.items()})

    @classmethod
    def member(cls, name, value):
        if isinstance(value, list):
            return [cls.member(name, item) for item in value]
        if not isinstance(value, dict) or name not in cls.model_fields:
            return value
        words = re.findall(r"\w+", cls.model_fields[name][1])
        kind = next((cls.kinds[word] for word in words if word in cls.kinds), None)
        return kind.of(value) if kind else value


def plain(value, *exclude):
    if isinstance(value, Model):
        return value.model_dump(*exclude)
    if isinstance(value, list):
        return [plain(item, *exclude) for item in value]
    return None if isinstance(value, Anything) else value


def models_of(path, kinds):
    """Adds the classes of a protocol module to kinds."""
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.ClassDef):
            continue
        fields = {}
        for base in node.bases:
            fields.update(getattr(kinds.get(getattr(base, "id", "")), "model_fields", {}))
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                fields[line.target.id] = (default(line.value), ast.unparse(line.annotation))
        kinds[node.name] = type(node.name, (Model,), {"model_fields": fields, "kinds": kinds})
        yield kinds[node.name]


def default(value):
    """A default that is written down; None for one that is made in another way."""
    for keyword in getattr(value, "keywords", ()):
        if keyword.arg == "default_factory":
            return []
        if keyword.arg == "default":
            return default(keyword.value)
    try:
        return ast.literal_eval(value)
    except ValueError:
        return None


class Serving:
    """The base class of the serving classes: every switch is off."""

    parser_cls = None
    system_fingerprint = None
    response_role = "assistant"

    def create_error_response(self, error, **more):
        raise error

    create_streaming_error_response = create_error_response

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


def should_include_usage(options, force):
    return bool(options and options.include_usage), bool(options and options.continuous_usage_stats)


KNOWN = {
    "GenerateBaseServing": Serving,
    "GenerationError": type("GenerationError", (Exception,), {}),
    "VLLMValidationError": type("VLLMValidationError", (Exception,), {}),
    "should_include_usage": should_include_usage,
    "as_list": list,
    "clamp_prompt_logprobs": lambda logprobs: logprobs,
    "maybe_filter_parallel_tool_calls": lambda delta, request: delta,
    "resolve_finish_reason": lambda reason, *rest: reason,
    "build_spec_decoding_metrics": lambda result: None,
}


class StandIn(ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = KNOWN.get(name) or Lenient(name, (Anything,), {})
        setattr(self, name, made)
        return made


class RealPackage:
    """Imports vLLM from the unpacked files of one version; a finder of sys.meta_path."""

    def __init__(self, version):
        self._root = PACKAGES / version
        if not (self._root / "vllm").is_dir():
            raise FileNotFoundError(f"{self._root} is missing: run scripts/vllm/fetch-packages")
        self._version = version
        self._kinds = {}

    def find_spec(self, name, path=None, target=None):
        root, _, rest = name.partition(".")
        if root != "vllm" and root not in FOREIGN:
            return None
        file = self._root / (name.replace(".", "/") + ".py")
        if name in REAL:
            return importlib.util.spec_from_file_location(name, file) if file.exists() else None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        file = self._root / (module.__name__.replace(".", "/") + ".py")
        if module.__name__ == "vllm":
            module.__version__ = self._version
        if file.name == "protocol.py" and file.exists():
            vars(module).update((kind.__name__, kind) for kind in models_of(file, self._kinds))
