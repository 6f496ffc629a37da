/** Locates the Python backend's modules, which runners import. */

import { fileURLToPath } from 'node:url'

/** Absolute path of the directory with `triton_python_backend_utils.py`; valid from both `src` and `dist`. */
export function pythonRuntime(): string {
  return fileURLToPath(new URL('../../crates/backend-python/runtime', import.meta.url))
}
