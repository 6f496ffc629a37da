/**
 * `nereid gpu`: prints what this machine has for models on GPUs, what is missing, and the commands that install it.
 * Starts no server and loads no model; opens the driver, and reads the files of ONNX Runtime's providers.
 *
 * Exit code 0 if models can run on a GPU, 1 otherwise, 2 for wrong arguments.
 */

import {
  OptionError,
  commandNamed,
  findOnnxRuntime,
  findProviders,
  listDevices,
  listMachineDevices,
  readArguments,
  readBackendConfig,
  readOptions,
} from '../../internal.js'
import { printFailure } from '../failure.js'
import { gpuReport } from './report.js'
import { reportText } from './text.js'

export async function run(_program: string, args: readonly string[]): Promise<number> {
  try {
    const own = readArguments(commandNamed('gpu'), args)
    const { options, warnings } = await readOptions(own.rest, process.env)
    for (const warning of warnings) process.stderr.write(`${warning}\n`)
    const visible = process.env['CUDA_VISIBLE_DEVICES'] ?? null
    const report = gpuReport({
      visible,
      computeCapabilityMin: options.minSupportedComputeCapability,
      devices: listDevices(),
      machine: listMachineDevices(visible),
      providers: findProviders(findOnnxRuntime(), onnxSettings(options.backendConfig)),
    })
    process.stdout.write(own.options.has('json') ? `${JSON.stringify(report, null, 2)}\n` : reportText(report))
    return report.isUsable ? 0 : 1
  } catch (error) {
    if (!(error instanceof OptionError)) return printFailure(error)
    process.stderr.write(`${error.message}\n`)
    return 2
  }
}

/** Settings of the backend `onnxruntime`, after those of all backends. */
function onnxSettings(given: readonly string[]): { key: string; value: string }[] {
  const settings = given.map(readBackendConfig)
  return [null, 'onnxruntime'].flatMap((owner) =>
    settings.filter(({ backend }) => backend === owner).map(({ key, value }) => ({ key, value })),
  )
}
