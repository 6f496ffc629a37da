/** Judges Triton images: their version, and the differences that a client may notice. */

import { BACKENDS, absentBackend, backendRow } from '../../internal.js'
import type { Findings, Located } from './findings.js'

const FLAVOURS: Readonly<Record<string, string>> = {
  min: 'no backends',
  'py3-min': 'no backends',
  py3: 'all backends of Triton',
}

/** Backends by the words in names and tags of images made for them. */
const BACKEND_OF_WORD: ReadonlyMap<string, string> = new Map(
  BACKENDS.flatMap(({ name, images = [] }) => images.map((word) => [word, name] as const)),
)

/** Contents of a Triton image by the end of its tag; null if Triton has no such image. */
function flavourOf(end: string): string | null {
  const backend = BACKEND_OF_WORD.get(/^(\w+)-python-py3$/.exec(end)?.[1] ?? '')
  return backend === undefined ? (FLAVOURS[end] ?? null) : `backends ${backend} and python`
}

const wordsOf = (image: string): string[] =>
  image
    .replace(/@.*$/, '')
    .slice(image.lastIndexOf('/') + 1)
    .toLowerCase()
    .replaceAll(/tensorrt[-_]llm/g, 'tensorrtllm')
    .split(/[^a-z0-9]+/)

/** True for an image of Triton's clients and tools, without a server. */
export function isClientImage(image: string): boolean {
  return wordsOf(image).some((word) => word === 'sdk' || word === 'tritonclient' || word === 'client')
}

/** The backend that an image is made for; null for any other image. */
export function backendOf(image: string): string | null {
  return wordsOf(image).flatMap((word) => BACKEND_OF_WORD.get(word) ?? [])[0] ?? null
}

/** True if models of this backend run in Python here. */
export const runsInPython = (backend: string): boolean =>
  backend === 'python' || backendRow(backend)?.module !== undefined

/** Year and month of a tag such as `24.05-py3`; null for any other. */
function release(tag: string): { year: number; month: number } | null {
  const [, year, month] = /^(\d\d)\.(\d\d)(?:-|$)/.exec(tag) ?? []
  return year === undefined ? null : { year: Number(year), month: Number(month) }
}

/** Triton version of an image `YY.MM`, one more each month: from 21.02 (2.7) to 25.06 (2.59). */
export function tritonVersion(tag: string): string | null {
  const { year = 0, month = 0 } = release(tag) ?? {}
  const months = (year - 21) * 12 + month - 2
  return month < 1 || month > 12 || months < 0 || months > 52 ? null : `2.${7 + months}`
}

/** @returns true if a Nereid image replaces it */
export function judgeImage(
  image: Located,
  findings: Findings,
  replacement: string,
  { models, absent }: { models: number; absent: number },
): boolean {
  const { text, at } = image
  const [, name = text, tag = ''] = /^(.*?)(?::([^/@:]*))?(?:@.*)?$/.exec(text) ?? []
  const subject = `image ${text}`
  if (/(?:^|\/)nereid(?:-python|-gpu)?$/.test(name)) {
    findings.same(at, subject, 'is Nereid')
    return true
  }
  if (isClientImage(text)) {
    findings.same(at, subject, 'clients and perf_analyzer: work with Nereid as they are')
    return false
  }
  const flavour = tag.replace(/^(?:\d\d\.\d\d|<[^<>]*>)-?/, '').replace(/-(?:igpu|sbsa)$/, '')
  const version = /triton/i.test(name) ? tritonVersion(tag) : null
  const ofOther = image.isOpen ? 'its name is known only at run time' : 'an image of your own: build it from Nereid’s'
  const has = flavourOf(flavour) ?? (/tritonserver/.test(name) ? null : ofOther)
  const found = [version === null ? null : `Triton ${version}`, has].filter((part) => part !== null).join(', ')
  const before = found === '' ? '' : `${found}; `
  const backend = backendOf(text)
  const isServed = models > 0 && absent === 0
  const why = backend === null ? null : absentBackend(backend)
  if (why !== null && !isServed) {
    const when = models === 0 ? 'where all its models are of ONNX or Python' : 'without such models'
    findings.fact(at, subject, 'imageBackend', `${before}${why}; ${when}, take ${replacement}`)
    return false
  }
  const module = backendRow(backend ?? '')?.module
  const wants =
    module === undefined
      ? `none of its models uses ${backend ?? ''}; the imports of their code have to be in the image`
      : `models of ${backend ?? ''} need the package ${module} in it`
  const served = backend === null ? '' : ` (${wants})`
  findings.fact(at, subject, 'image', `${before}take ${replacement}, which docs/containers.md makes${served}`)
  // A variable's value is edited where it is set.
  if (!/^\{\{[^{}]*\}\}(?::\{\{[^{}]*\}\})?$/.test(text.replaceAll(' ', '')))
    findings.replace(at, image.written ?? text, replacement)
  const { year = 99, month = 1 } = (/triton/i.test(name) ? release(tag) : null) ?? {}
  if (year * 100 + month < 2605) findings.fact(at, `shared memory in ${tag}`, 'clientShm')
  if (year * 100 + month < 2401) findings.fact(at, `errors over HTTP in ${tag}`, 'httpStatus')
  return true
}
