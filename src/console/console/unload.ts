/** The question before a model is unloaded. Pure. */

import { counted } from '../format.js'
import { figuresOf, type Version } from './picture.js'

/** Says what is lost with a model: all its versions are unloaded together. */
export function unloadText(name: string, versions: readonly Version[]): string {
  const figures = versions.map((one) => figuresOf(one))
  const rate = figures.reduce((sum, one) => sum + one.rate, 0)
  const count = versions.length > 1 ? ` and its ${versions.length} versions` : ''
  return (
    `Unload ${name}${count}? ` +
    (rate > 0
      ? `It serves ${counted(rate, 'request')} requests per second, which will fail.`
      : 'It serves no requests now.')
  )
}
