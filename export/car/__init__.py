"""The small real model `car`: simulator video, VQ tokenizer, AR backbone, and the checkpoint they are kept in."""
