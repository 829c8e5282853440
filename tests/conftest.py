import os
import pathlib

import jax

jax.config.update("jax_enable_x64", True)
cache = os.environ.get("JAXMB_TEST_CACHE", str(pathlib.Path(__file__).parent.parent / ".jax_cache"))
jax.config.update("jax_compilation_cache_dir", cache)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
