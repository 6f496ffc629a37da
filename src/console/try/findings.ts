/**
 * Boxes and classes in an answer about one picture, found by names and shapes of outputs: those of the backends `boxes`
 * and `labels`. Pure.
 */

import type { Tensor } from '../../../client/src/tensor.js'

/** Boxes that are drawn, and rows that are listed. */
export const FINDINGS_MAX = 300

/** Left, top, right, bottom in pixels of the picture. */
export type Box = readonly [number, number, number, number]

export interface Finding {
  label: string
  /** Null if the model gives none. */
  score: number | null
  /** Null for a class of the whole picture. */
  box: Box | null
  /** The colour in degrees, the same for each box of a class. */
  hue: number
}

/** Null if the outputs have another meaning. */
export function findingsOf(outputs: readonly Tensor[]): Finding[] | null {
  const named = new Map(outputs.map((tensor) => [tensor.name.toUpperCase(), tensor]))
  const values = (name: string): ArrayLike<number> | null => {
    const tensor = named.get(name)
    return tensor === undefined || tensor.datatype === 'BYTES' ? null : tensor.floats()
  }
  const [boxes, scores, classes] = [values('BOXES'), values('SCORES'), values('CLASSES')]
  const names = named.get('LABELS')
  const labels = names?.datatype === 'BYTES' ? names.strings() : null
  const shape = named.get(boxes === null ? 'SCORES' : 'BOXES')?.shape ?? []
  if (boxes === null ? scores === null || (classes ?? labels) === null : shape.at(-1) !== 4) return null
  const count = shape.at(boxes === null ? -1 : -2) ?? -1
  // Other lengths are those of several pictures, or of a model whose outputs only have the same names.
  const isFitting = (list: ArrayLike<unknown> | null, each = 1): boolean =>
    list === null || list.length === each * count
  if (!isFitting(boxes, 4) || ![scores, classes, labels].every((list) => isFitting(list))) return null
  const real = Math.min(count, values('COUNT')?.[0] ?? count)
  const found: Finding[] = []
  for (let i = 0; i < real; i += 1) {
    const number = classes?.[i] ?? null
    const box = boxes === null ? null : (Array.from({ length: 4 }, (_, k) => boxes[4 * i + k]) as unknown as Box)
    // Class -1 fills the rows of a batch.
    if (number === -1 || box?.every(Number.isFinite) === false) continue
    const label = labels?.[i] || (number === null ? '' : `class ${number}`)
    found.push({ label, score: scores?.[i] ?? null, box, hue: hueOf(number ?? 0) })
  }
  return found
}

/** Neighbouring numbers get colours far apart. */
const hueOf = (number: number): number => Math.round(Math.abs(number) * 137.5) % 360

/** `label score`, as it stands at a box. */
export const captionOf = ({ label, score }: Finding): string => `${label} ${score?.toFixed(2) ?? ''}`.trim()

/** Where a box and its text stand, in percent of the picture. */
export interface Drawn {
  x: number
  y: number
  width: number
  height: number
  textX: number
  /** The text ends at `textX`, for a box at the right. */
  isEnd: boolean
  /** The text is below the upper edge, for a box at the top. */
  isInside: boolean
}

/** Percent of the picture's height that a text above a box needs at most. */
const TEXT_PERCENT = 8

export function drawnOf([left, top, right, bottom]: Box, width: number, height: number): Drawn {
  const percent = (value: number, of: number): number => (Math.max(0, Math.min(of, value)) / of) * 100
  const [x, y] = [percent(left, width), percent(top, height)]
  const [farX, farY] = [percent(right, width), percent(bottom, height)]
  const isEnd = x > 60
  return {
    x,
    y,
    width: Math.max(0, farX - x),
    height: Math.max(0, farY - y),
    textX: isEnd ? farX : x,
    isEnd,
    isInside: y < TEXT_PERCENT,
  }
}

/** The coordinates of a box for the table. */
export const boxText = (box: Box): string => box.map((value) => String(Number(value.toFixed(1)))).join(', ')
