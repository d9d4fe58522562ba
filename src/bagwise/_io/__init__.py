"""Files: written whole or not at all, and tensors in safetensors form, read whole or mapped."""
