"""Break a store on purpose: failing disks, power cuts, killed processes, and what must hold afterwards."""
