"""What training scripts share: devices, checkpoints, model folders."""
