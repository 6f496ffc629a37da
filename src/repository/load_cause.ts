/** Adds to an error of a load what the file at fault is instead: a pointer of Git LFS, a page of HTML. */

import { toBinary, type ModelConfig } from '../config/index.js'
import type { TextFolder } from '../native/contract.js'
import { ServerError, asServerError, readTextFolder } from '../native/index.js'
import { whyForeign } from './onnx_file.js'

/** Appends to an error of ONNX Runtime what the file is, if it is not a model. */
export function withCause(error: unknown, file: string): unknown {
  const { code, message } = asServerError(error)
  try {
    const why = whyForeign(file)
    return why === null ? error : new ServerError(code, `${message.trimEnd()}; the file ${why}`, { cause: error })
  } catch {
    // The file cannot be read, which is what the error already reports.
    return error
  }
}

/** Likewise for a text model, whose folder has several files: the error names the one at fault. */
export function withCauseOfText(error: unknown): unknown {
  const file = /(\/.*?\.(?:json|onnx))(?::| failed)/.exec(asServerError(error).message)?.[1]
  return file === undefined ? error : withCause(error, file)
}

/** Reads the folder of a text model as a load does, with the errors of a load; null without a native module. */
export function textFolderOf(config: ModelConfig, versionDirectory: string): TextFolder | null {
  try {
    return readTextFolder(toBinary(config), versionDirectory)
  } catch (error) {
    throw withCauseOfText(error)
  }
}
