"""llama.cpp through the wheel xllamacpp, on the book's weights: F32 and BF16 files written by `gguf`, one server in this process."""

import gguf
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

from lib import find_model, open_gguf

ONE_TOKEN_LEFT = {"temperature": 0, "top_k": 1, "samplers": ["top_k"], "ignore_eos": True}


def write_gguf(kind, folder):
    """The published GGUF file with its tensors dequantised to F32 or BF16 (norms stay F32, as llama.cpp has them). -> its path"""
    path = folder / f"{find_model().name}.{kind}.gguf"
    if path.exists():
        return path
    published = find_model("gguf")
    reader, tensors = GGUFReader(published), open_gguf(published)
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    writer = GGUFWriter(part, "llama")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            writer.add_key_value(name, field.contents(), *field.types[:2])
    for tensor in reader.tensors:
        values = tensors[tensor.name].numpy()
        stored = GGMLQuantizationType[kind if values.ndim == 2 else "F32"]
        writer.add_tensor(tensor.name, gguf.quantize(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(path)
    return path


class Llama:
    """A server with `batch` slots of `room` tokens each, which share nothing."""

    def __init__(self, path, batch, room, threads, cores):
        import xllamacpp

        p = xllamacpp.CommonParams()
        p.model.path, p.n_ctx, p.n_parallel, p.kv_unified = str(path), batch * room, batch, False
        p.cpuparams.n_threads, p.cpuparams_batch.n_threads = threads, cores
        p.verbosity, p.warmup = -1, False
        self.server, self.batch = xllamacpp.Server(p), batch

    def step_ms(self, prompt, steps):
        """Milliseconds of one step of all slots after the same prompt, by llama.cpp's own clock. The prompt is read once."""
        asked = {"prompt": prompt, "n_predict": steps + 1, "n_cmpl": self.batch, "cache_prompt": True}
        return self._ask(asked)["predicted_per_token_ms"]

    def prefill_ms(self, prompt):
        return self._ask({"prompt": prompt, "n_predict": 1, "cache_prompt": False})["prompt_ms"]

    def _ask(self, asked):
        answer = self.server.handle_completions(asked | ONE_TOKEN_LEFT)
        if "timings" not in answer:
            raise RuntimeError(f"llama.cpp answered {str(answer)[:300]}")
        return answer["timings"]
