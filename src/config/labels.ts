/** Reads the class labels of outputs. Only classification requests use them. */
import { relative, resolve, sep } from 'node:path'
import { ConfigError } from './error.js'
import { LABEL_BYTES_MAX, readRegularFile } from './files.js'
import type { ModelConfig } from './generated/model_config_pb.js'

/** The label file of one output with a label per line; the index of a line is the index of the class. */
export interface Labels {
  output: string
  text: Buffer
}

/**
 * Labels of every output that has a label file.
 *
 * @throws {ConfigError} UNSUPPORTED for a path that leaves the model directory, INTERNAL for an unreadable file
 */
export function readLabels(config: ModelConfig, modelDirectory: string): Labels[] {
  return config.output
    .filter((output) => output.labelFilename !== '')
    .map((output) => {
      const path = `${modelDirectory}/${output.labelFilename}`
      const inside = relative(resolve(modelDirectory), resolve(path))
      if (inside === '..' || inside.startsWith(`..${sep}`)) {
        throw new ConfigError(
          'UNSUPPORTED',
          `label file path '${path}' for output '${output.name}' in model '${config.name}' is outside model directory`,
        )
      }
      return {
        output: output.name,
        text: readRegularFile(path, LABEL_BYTES_MAX, `failed to open text file for read ${path}`),
      }
    })
}
