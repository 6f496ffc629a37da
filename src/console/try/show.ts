/** Tensors as texts: small ones in their shape, large ones as a summary. Pure. */

import { decodeText } from '../../../client/src/bytes.js'
import { fromBfloat16, fromFloat16, toBfloat16, toFloat16 } from '../../../client/src/float16.js'
import type { Tensor } from '../../../client/src/tensor.js'

/** Elements that are shown in their shape; of a larger tensor only the first are. */
export const ELEMENTS_MAX = 512
/** First elements of a large tensor. */
const FIRST_MAX = 32
/** Elements of BYTES that are shown, and characters of each. */
export const TEXTS_MAX = 100
const CHARACTERS_MAX = 10_000
/** Bytes of an element that is no text, as hexadecimal digits. */
const HEX_BYTES_MAX = 32

/** Rounds to what a datatype holds. */
export const ROUNDED: Readonly<Record<string, (value: number) => number>> = {
  FP16: (value) => fromFloat16(toFloat16(value)),
  BF16: (value) => fromBfloat16(toBfloat16(value)),
  FP32: Math.fround,
}

/** The shortest digits that give the same float of `datatype` again. */
function digits(value: number | bigint, datatype: string): string {
  const round = ROUNDED[datatype]
  if (typeof value === 'bigint' || round === undefined || !Number.isFinite(value)) return String(value)
  let precision = 1
  while (precision < 9 && round(Number(value.toPrecision(precision))) !== value) precision += 1
  return String(Number(value.toPrecision(precision)))
}

/** Numbers of a tensor; those of 64-bit integers are bigints. */
function elementsOf(tensor: Tensor): ArrayLike<number | bigint> {
  return tensor.datatype === 'FP16' || tensor.datatype === 'BF16' ? tensor.floats() : (tensor.data as Uint8Array)
}

const word = (value: number | bigint, datatype: string): string =>
  datatype === 'BOOL' ? String(value !== 0) : digits(value, datatype)

/** Lists of lists, the innermost on one line each. */
export function nested(words: readonly string[], shape: readonly number[], indent = ''): string {
  if (shape.length === 0) return words[0] ?? ''
  const [length = 0, ...inner] = shape
  if (inner.length === 0) return `[${words.join(', ')}]`
  if (words.length === 0) return '[]'
  const step = words.length / length
  const rows = Array.from({ length }, (_, i) => nested(words.slice(i * step, (i + 1) * step), inner, `${indent} `))
  return `[${rows.join(`,\n${indent} `)}]`
}

export interface NumbersShown {
  text: string
  /** Facts about a large tensor, whose text has only the first elements. */
  summary: readonly (readonly [string, string])[] | null
}

export function numbersShown(tensor: Tensor): NumbersShown {
  const elements = elementsOf(tensor)
  const { datatype, shape } = tensor
  const words = (count: number): string[] =>
    Array.from({ length: count }, (_, i) => word(elements[i] as number, datatype))
  if (elements.length <= ELEMENTS_MAX) return { text: nested(words(elements.length), shape), summary: null }
  let [min, max, sum, odd] = [elements[0] as number | bigint, elements[0] as number | bigint, 0, 0]
  for (let i = 0; i < elements.length; i += 1) {
    const value = elements[i] as number | bigint
    // NaN compares with nothing, so it would stay minimum and maximum.
    if (Number.isNaN(value)) odd += 1
    else {
      if (value < min || Number.isNaN(min)) min = value
      if (value > max || Number.isNaN(max)) max = value
      sum += Number(value)
    }
  }
  const summary: [string, string][] = [
    ['elements', elements.length.toLocaleString('en')],
    ['min', word(min, datatype)],
    ['max', word(max, datatype)],
    ['mean', String(Number((sum / (elements.length - odd)).toPrecision(6)))],
  ]
  if (odd > 0) summary.push(['NaN', odd.toLocaleString('en')])
  return { text: `${words(FIRST_MAX).join(', ')}, …`, summary }
}

/** Beginnings of the formats that browsers show. */
const IMAGES: readonly (readonly [string, RegExp])[] = [
  ['image/png', /^\x89PNG\r\n/],
  ['image/jpeg', /^\xff\xd8\xff/],
  ['image/gif', /^GIF8[79]a/],
  ['image/webp', /^RIFF[^]{4}WEBP/],
  ['image/bmp', /^BM[^]{4}\0{4}/],
]
/** Control characters that texts do not have, and what invalid UTF-8 becomes. */
// oxlint-disable-next-line no-control-regex
const NO_TEXT = /[\0-\x08\x0e-\x1f\ufffd]/

export type BytesShown =
  | { kind: 'text'; text: string; more: number }
  | { kind: 'image'; type: string; bytes: Uint8Array }
  | { kind: 'bytes'; text: string; more: number }

/** A text, an image, or bytes that are neither. */
export function bytesShown(bytes: Uint8Array): BytesShown {
  const head = String.fromCharCode(...bytes.subarray(0, 16))
  const image = IMAGES.find(([, begin]) => begin.test(head))
  if (image !== undefined) return { kind: 'image', type: image[0], bytes }
  // A part of it is decoded: an element may have hundreds of megabytes. A character has at most four bytes.
  const part = bytes.subarray(0, 4 * CHARACTERS_MAX)
  const text = decodeText(part).replace(part.length < bytes.length ? /\ufffd$/ : /(?!)/, '')
  if (!NO_TEXT.test(text)) {
    const shown = text.slice(0, CHARACTERS_MAX)
    return { kind: 'text', text: shown, more: Math.max(text.length - shown.length, bytes.length - part.length) }
  }
  const hex = Array.from(bytes.subarray(0, HEX_BYTES_MAX), (byte) => byte.toString(16).padStart(2, '0')).join(' ')
  return { kind: 'bytes', text: hex, more: Math.max(0, bytes.length - HEX_BYTES_MAX) }
}
