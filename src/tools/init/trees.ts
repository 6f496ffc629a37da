/** Reads files of trees: the `model_type` of the backend `fil`, and whether the objective is that of a classifier. */

import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import { backendRow } from '../../internal.js'

export interface TreesFile {
  /** Value of the parameter `model_type`. */
  type: string
  /** File name in a version. */
  file: string
  isClassifier: boolean
}

/** File name endings in the frameworks' own examples. */
export const TREES = /\.(?:json|ubj|txt|tl|model)$/i

/** Names of files in a version by `model_type`. */
const FILES = backendRow('fil')?.chosen ?? {}

/** Objectives are near the beginning or the end of a file, after at most the feature names. */
const END_BYTES = 1 << 16

const XGBOOST_CLASSIFIER = /binary:(?:logistic|hinge)|multi:soft(?:max|prob)/
const LIGHTGBM_CLASSIFIER = /^objective=(?:binary|multiclass)/m
/** Offset of the task in files of treelite 4: after the version, two types, and the numbers of trees and features. */
const TREELITE_TASK_AT = 26
/** Classifiers of two and of several classes in treelite's `TaskType`. */
const TREELITE_CLASSIFIERS: readonly number[] = [0, 2]

/** Type of a file of trees; null if no known framework wrote it. */
export function treesIn(path: string): TreesFile | null {
  const text = endsOf(path)
  const type = typeOf(path, text)
  if (type === null) return null
  const isClassifier =
    type === 'treelite_checkpoint'
      ? TREELITE_CLASSIFIERS.includes(text.charCodeAt(TREELITE_TASK_AT))
      : (type === 'lightgbm' ? LIGHTGBM_CLASSIFIER : XGBOOST_CLASSIFIER).test(text)
  return { type, file: FILES[type] ?? '', isClassifier }
}

/** Detects the type by content: XGBoost and LightGBM write the same bytes under any file name. */
function typeOf(path: string, text: string): string | null {
  if (/^tree\r?\n/.test(text)) return 'lightgbm'
  if (/^\s*\{\s*"/.test(text)) return text.includes('"learner"') ? 'xgboost_json' : null
  if (text.startsWith('{')) return 'xgboost_ubj'
  if (/\.tl$/i.test(path)) return 'treelite_checkpoint'
  return /\.model$/i.test(path) ? 'xgboost' : null
}

/** The first and the last bytes of a file, one letter per byte. */
function endsOf(path: string): string {
  const file = openSync(path, 'r')
  try {
    const { size } = fstatSync(file)
    const read = (from: number, bytes: number): string => {
      const buffer = Buffer.alloc(bytes)
      return buffer.toString('latin1', 0, readSync(file, buffer, 0, bytes, from))
    }
    const head = Math.min(size, END_BYTES)
    const tail = Math.min(size - head, END_BYTES)
    return read(0, head) + (tail === 0 ? '' : read(size - tail, tail))
  } finally {
    closeSync(file)
  }
}
