/** The report as text. Pure. */

import { printable } from '../../internal.js'
import { cudaOf, type GpuReport } from './report.js'

const COLUMN = 14

export function reportText(report: GpuReport): string {
  const { driver, devices, hidden, providers, problems, notes, todo } = report
  const lines = [
    ...entry('driver', [
      driver.version === null && driver.cuda === null
        ? 'none'
        : [driver.version, driver.cuda === null ? null : `for CUDA up to ${driver.cuda}`]
            .filter((one) => one !== null)
            .join(', '),
    ]),
    ...entry('devices', devices.length === 0 ? ['none'] : devices.map(deviceText)),
    ...entry(
      'hidden',
      hidden.map(({ uuid, name }) => `${name}, ${uuid}`),
    ),
    ...entry('ONNX Runtime', [
      [providers.release, providers.library].filter((one) => one !== undefined).join(', ') || 'none',
    ]),
    ...provider('CUDA', providers.cuda, cudaOf(providers)),
    ...provider('TensorRT', providers.tensorrt, null),
  ]
  if (problems.length > 0) lines.push('', 'Models do not run on a GPU here:', ...problems.map((one) => `  ${one}`))
  else lines.push('', 'Everything that models on a GPU need is installed.')
  if (notes.length > 0) lines.push('', 'Also:', ...notes.map((one) => `  ${one}`))
  if (todo.length > 0)
    lines.push(
      '',
      'To do:',
      ...todo.flatMap(({ words, command }) => [`  ${words}`, ...(command === null ? [] : [`      ${command}`])]),
    )
  return `${lines.map(printable).join('\n')}\n`
}

function entry(name: string, texts: readonly string[]): string[] {
  return texts.map((text, i) => `${(i === 0 ? name : '').padEnd(COLUMN)}${text}`)
}

function deviceText({
  ordinal,
  name,
  uuid,
  pciAddress,
  computeCapability,
  memoryBytes,
  peers,
  isUsed,
}: GpuReport['devices'][number]): string {
  const facts = [
    name === '' ? 'a device without a name' : name,
    computeCapability === null
      ? null
      : `compute capability ${computeCapability}${isUsed ? '' : ' (too low, not used)'}`,
    memoryBytes === null ? null : `${(memoryBytes / 2 ** 30).toFixed(1)} GiB`,
    uuid,
    pciAddress,
    peers.length === 0 ? null : `reads the memory of ${peers.join(', ')}`,
  ]
  return `${ordinal}: ${facts.filter((one) => one !== null).join(', ')}`
}

function provider(name: string, { file, libraries }: GpuReport['providers']['cuda'], cuda: number | null): string[] {
  if (file === undefined) return entry(name, ['no provider'])
  return entry(name, [
    `${file}${cuda === null ? '' : `, built for CUDA ${cuda}`}`,
    ...libraries.map((one) => `  ${one.name}: ${one.file ?? (one.optional ? 'missing, optional' : 'missing')}`),
  ])
}
