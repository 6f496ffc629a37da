/** Rejects names of models that are too long or could leave the repository. */

import { ServerError, quoted } from '../native/index.js'

/** Longer than any directory name; models loaded from files in a request need no longer names either. */
const MODEL_NAME_CHARS_MAX = 1024

/** @throws {ServerError} `INVALID_ARG` */
export function requireSafeName(name: string): void {
  const trimmed = name.trim()
  if (trimmed === '') {
    throw new ServerError('INVALID_ARG', 'Model name cannot be empty. Please enter a valid name to deploy.')
  }
  if (name.length > MODEL_NAME_CHARS_MAX) {
    const text = `invalid model name '${quoted(name)}', model name must not have more than`
    throw new ServerError('INVALID_ARG', `${text} ${MODEL_NAME_CHARS_MAX} characters`)
  }
  // `.` would be the repository itself.
  if (trimmed === '..' || trimmed === '.' || name.includes('/') || name.includes('\0')) {
    const text = `invalid model name '${quoted(name)}', model name must not contain path traversal characters`
    throw new ServerError('INVALID_ARG', text)
  }
}
