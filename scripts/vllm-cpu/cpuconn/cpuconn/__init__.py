"""A vLLM plug-in for tests: Mooncake and LMCache with the KV cache of vLLM's CPU build.

Both connectors ask for an accelerator where they do not need one. What they say to each other and to a proxy is
untouched: Mooncake's transfer engine and bootstrap server, LMCache's P/D backend, notifier and storage run as installed.

Written for vLLM 0.32.0, mooncake-transfer-engine 0.3.13 and LMCache 0.5.6. VLLM_PLUGINS chooses it.
"""

__all__ = ["register"]


def register() -> None:
    """Called by vLLM in each of its processes, several times in some of them."""
    _answer_for_the_device()
    _give_lmcache_a_copier()


def _answer_for_the_device() -> None:
    """MooncakeConnectorWorker asks torch for the accelerator's index and makes it current in each of its threads."""
    import torch
    from vllm.platforms import current_platform

    torch.accelerator.current_device_index = lambda: 0
    type(current_platform).set_device = classmethod(lambda cls, device: None)


def _give_lmcache_a_copier() -> None:
    """LMCache's CreateGPUConnector has no branch for the CPU ("No supported cpu connector found").

    It is replaced when a connector is made and not before: LMCache imported before the worker looks for its attention
    kernels makes that search fail.
    """
    from vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector import LMCacheConnectorV1

    make = LMCacheConnectorV1.__init__
    if getattr(make, "of_cpuconn", False):
        return

    def make_with_copier(self, *args, **kwargs):
        import lmcache.v1.gpu_connector as factory

        from cpuconn.copier import copier_class

        copier = copier_class(factory.GPUConnectorInterface)
        factory.CreateGPUConnector = lambda config, metadata, engine, layout_hints=None: copier(metadata.kv_shape)
        make(self, *args, **kwargs)

    make_with_copier.of_cpuconn = True
    LMCacheConnectorV1.__init__ = make_with_copier
