"""Auto-regressive video models with cache-attentive replay on AMD/Xilinx edge boards."""
