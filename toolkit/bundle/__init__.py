"""The one artifact that travels: a verified folder with graph, weights, decoder, prompts and their record."""
