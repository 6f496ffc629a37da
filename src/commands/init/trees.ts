/** Files of trees: which `model_type` of the backend `fil` reads one, and whether its objective is that of a classifier. */

import { closeSync, fstatSync, openSync, readSync } from 'node:fs'

export interface TreesFile {
  /** Value of the parameter `model_type`. */
  type: string
  /** Name of the file in a version. */
  file: string
  isClassifier: boolean
}

/** Ends of names that the frameworks' own examples use. */
export const TREES = /\.(?:json|ubj|txt|tl|model)$/i

/** Names of files in a version; see `BACKENDS`. */
const FILES = { xgboost: 'xgboost.model', xgboost_json: 'xgboost.json', xgboost_ubj: 'xgboost.ubj', lightgbm: 'model.txt', treelite_checkpoint: 'checkpoint.tl' } as const

/** Objectives stand near the beginning or the end of a file, with at most the names of features between. */
const END_BYTES = 1 << 16

const XGBOOST_CLASSIFIER = /binary:(?:logistic|hinge)|multi:soft(?:max|prob)/
const LIGHTGBM_CLASSIFIER = /^objective=(?:binary|multiclass)/m
/** Where treelite 4 writes the task: behind the version, two types, the number of trees and that of features. */
const TREELITE_TASK_AT = 26
/** Classifiers of two and of several classes, in treelite's `TaskType`. */
const TREELITE_CLASSIFIERS: readonly number[] = [0, 2]

/** What a file of trees is; null for one that none of the frameworks wrote. */
export function treesIn(path: string): TreesFile | null {
  const text = endsOf(path)
  const type = typeOf(path, text)
  if (type === null) return null
  const isClassifier =
    type === 'treelite_checkpoint' ? TREELITE_CLASSIFIERS.includes(text.charCodeAt(TREELITE_TASK_AT)) : (type === 'lightgbm' ? LIGHTGBM_CLASSIFIER : XGBOOST_CLASSIFIER).test(text)
  return { type, file: FILES[type], isClassifier }
}

/** By what is in it: XGBoost and LightGBM write the same bytes whatever the file is called. */
function typeOf(path: string, text: string): keyof typeof FILES | null {
  if (/^tree\r?\n/.test(text)) return 'lightgbm'
  if (/^\s*\{\s*"/.test(text)) return text.includes('"learner"') ? 'xgboost_json' : null
  if (text.startsWith('{')) return 'xgboost_ubj'
  if (/\.tl$/i.test(path)) return 'treelite_checkpoint'
  return /\.model$/i.test(path) ? 'xgboost' : null
}

/** The first and the last bytes of a file, each as one letter. */
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
