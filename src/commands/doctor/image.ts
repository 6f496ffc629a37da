/** Images of Triton: which version they are, and what a client of theirs may notice. */

import type { Findings, Located } from './findings.js'

const FLAVOURS: Readonly<Record<string, string>> = {
  sdk: 'clients and perf_analyzer, no server',
  min: 'no backends',
  'py3-min': 'no backends',
  'pyt-python-py3': 'backends pytorch and python',
  'tf2-python-py3': 'backends tensorflow and python',
  'vllm-python-py3': 'backends vllm and python',
  'trtllm-python-py3': 'backends tensorrtllm and python',
  py3: 'all backends of Triton',
}

/** Version of Triton in an image `YY.MM`, where it is one more each month: from 21.02 (2.7) to 25.06 (2.59). */
export function tritonVersion(tag: string): string | null {
  const [, year = '', month = ''] = /^(\d\d)\.(\d\d)(?:-|$)/.exec(tag) ?? []
  const months = (Number(year) - 21) * 12 + Number(month) - 2
  return year === '' || Number(month) < 1 || Number(month) > 12 || months < 0 || months > 52 ? null : `2.${7 + months}`
}

/** `24.05` as a number that grows, or null. */
function release(tag: string): number | null {
  const [, year = '', month = ''] = /^(\d\d)\.(\d\d)(?:-|$)/.exec(tag) ?? []
  return year === '' ? null : Number(year) * 100 + Number(month)
}

export function judgeImage(image: Located, findings: Findings, replacement: string): void {
  const { text, at } = image
  const [, name = text, tag = ''] = /^(.*?)(?::([^/@:]*))?(?:@.*)?$/.exec(text) ?? []
  const subject = `image ${text}`
  if (/(?:^|\/)nereid$/.test(name)) return findings.add(at, subject, 'same', 'is Nereid')
  const flavour = tag.replace(/^\d\d\.\d\d-?/, '').replace(/-(?:igpu|sbsa)$/, '')
  if (flavour === 'sdk') return findings.add(at, subject, 'same', 'clients and perf_analyzer: work with Nereid as they are')
  const version = tritonVersion(tag)
  const has = FLAVOURS[flavour] ?? (/tritonserver/.test(name) ? null : 'an image of your own: build it from Nereid’s')
  const found = [version === null ? '' : `Triton ${version}`, has ?? ''].filter((part) => part !== '').join(', ')
  findings.fact(at, subject, 'image', `${found}${found === '' ? '' : '; '}take ${replacement}, which docs/containers.md makes`)
  findings.replace(at, image.written ?? text, replacement)
  const month = release(tag)
  if (month === null) return
  if (month < 2605) findings.fact(at, `shared memory in ${tag}`, 'clientShm')
  if (month < 2401) findings.fact(at, `errors over HTTP in ${tag}`, 'httpStatus')
}
