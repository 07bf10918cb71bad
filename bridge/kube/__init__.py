"""Kubernetes behind one gateway: client, reflector, store, lease, fake. Alone knows the Kubernetes client."""
