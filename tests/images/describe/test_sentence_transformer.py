import torch
from torch import nn

from labelwise.images.describe.minilm import MiniLM


class Tokens:
    """Letters as tokens."""

    class Encoded:
        def __init__(self, text: str) -> None:
            self.ids = [ord(letter) - ord("a") + 1 for letter in text]

    def encode_batch(self, texts: list[str]) -> list["Tokens.Encoded"]:
        return [Tokens.Encoded(text) for text in texts]


def reference(size: int, layers: int, heads: int) -> tuple[MiniLM, nn.ModuleList, nn.LayerNorm]:
    """A random encoder, and the same weights in torch's own layers."""
    torch.manual_seed(0)
    blocks = nn.ModuleList(
        nn.TransformerEncoderLayer(size, heads, 2 * size, 0.0, "gelu", batch_first=True) for _ in range(layers)
    )
    norm = nn.LayerNorm(size)
    for parameter in (*blocks.parameters(), *norm.parameters()):
        nn.init.normal_(parameter, std=0.3)
    weights = {
        "embeddings.word_embeddings.weight": torch.randn(27, size),
        "embeddings.position_embeddings.weight": torch.randn(16, size),
        "embeddings.token_type_embeddings.weight": torch.randn(2, size),
    }
    modules: dict[str, nn.Module] = {"embeddings.LayerNorm": norm}
    for i, block in enumerate(blocks):
        at = f"encoder.layer.{i}"
        names = {
            "attention.output.dense": "self_attn.out_proj",
            "attention.output.LayerNorm": "norm1",
            "intermediate.dense": "linear1",
            "output.dense": "linear2",
            "output.LayerNorm": "norm2",
        }
        modules |= {f"{at}.{ours}": block.get_submodule(theirs) for ours, theirs in names.items()}
        for kind in ("weight", "bias"):
            parts = block.get_parameter(f"self_attn.in_proj_{kind}").detach().chunk(3)
            weights |= {
                f"{at}.attention.self.{p}.{kind}": t for p, t in zip(("query", "key", "value"), parts, strict=True)
            }
    weights |= {
        f"{at}.{kind}": m.get_parameter(kind).detach() for at, m in modules.items() for kind in ("weight", "bias")
    }
    arrays = {name: each.detach().numpy() for name, each in weights.items()}
    model = MiniLM(weights=arrays, tokenizer=Tokens(), layers=layers, heads=heads, epsilon=1e-5)
    return model, blocks, norm


def test_the_transformer_equals_torch_layers_one_sentence_at_a_time() -> None:
    model, blocks, norm = reference(size=8, layers=2, heads=2)
    texts = ["owl", "a", "hummingbird", *("bird" * (i % 4 + 1) for i in range(70))]
    rows = []
    with torch.no_grad():
        for text in texts:
            ids = torch.tensor([ord(letter) - ord("a") + 1 for letter in text])
            x = torch.from_numpy(model.weights["embeddings.word_embeddings.weight"])[ids]
            x = x + torch.from_numpy(model.weights["embeddings.position_embeddings.weight"])[: len(ids)]
            x = norm(x + torch.from_numpy(model.weights["embeddings.token_type_embeddings.weight"])[0])[None]
            for block in blocks:
                x = block.train()(x)  # without dropout; evaluation would take another kernel
            mean = x[0].mean(0)
            rows.append(mean / mean.norm())
    torch.testing.assert_close(torch.from_numpy(model.encode(texts)), torch.stack(rows), rtol=1e-4, atol=1e-5)
