"""The overlay: kernels and decode engine in HLS C++, two units as RTL, their C simulation and their estimates."""
