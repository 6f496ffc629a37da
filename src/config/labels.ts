/** Reads the class labels that outputs name. Used by classification requests only. */
import { relative, resolve, sep } from 'node:path'
import { ConfigError } from './error.js'
import { LABEL_BYTES_MAX, readRegularFile } from './files.js'
import type { ModelConfig } from './generated/model_config_pb.js'

/** The lines of one output's label file; the index of a line is the index of the class. */
export interface Labels {
  output: string
  lines: string[]
}

/**
 * Labels of every output that has a label file.
 *
 * @throws {ConfigError} UNSUPPORTED for a path that leaves the model directory, INTERNAL for a file that cannot be read
 */
export function readLabels(config: ModelConfig, modelDirectory: string): Labels[] {
  return config.output
    .filter((output) => output.labelFilename !== '')
    .map((output) => {
      const path = `${modelDirectory}/${output.labelFilename}`
      const inside = relative(resolve(modelDirectory), resolve(path))
      if (inside === '..' || inside.startsWith(`..${sep}`)) {
        throw new ConfigError('UNSUPPORTED', `label file path '${path}' for output '${output.name}' in model '${config.name}' is outside model directory`)
      }
      return { output: output.name, lines: splitLines(readRegularFile(path, LABEL_BYTES_MAX, `failed to open text file for read ${path}`).toString()) }
    })
}

/** At newlines only: a carriage return belongs to the label. An end without a newline is a line, an empty one is not. */
function splitLines(text: string): string[] {
  const lines = text.split('\n')
  if (lines.at(-1) === '') lines.pop()
  return lines
}
