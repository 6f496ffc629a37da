/** Counts the terminal columns of a text. Expects escaped control characters; ignores colour sequences. */

import { stripVTControlCharacters } from 'node:util'

const ASCII = /^[\x20-\x7e]*$/
/** Combining marks, joiners and variation selectors. */
const NONE = /[\p{Mn}\p{Me}\u200b-\u200d\u2060\ufeff]/u
/** East Asian wide characters and emoji. */
const WIDE = new RegExp(
  '[\\u1100-\\u115f\\u2e80-\\u303e\\u3041-\\ua4cf\\ua960-\\ua97c\\uac00-\\ud7a3\\uf900-\\ufaff\\ufe30-\\ufe6f' +
    '\\uff01-\\uff60\\uffe0-\\uffe6\\u{20000}-\\u{3fffd}]|\\p{Emoji_Presentation}',
  'u',
)

export function textWidth(text: string): number {
  const bare = stripVTControlCharacters(text)
  return ASCII.test(bare) ? bare.length : [...bare].reduce((sum, letter) => sum + widthOf(letter), 0)
}

const widthOf = (letter: string): number => (NONE.test(letter) ? 0 : WIDE.test(letter) ? 2 : 1)

/** Length of the longest start of a text that fits into `width` columns, without cutting a character. */
export function fittingEnd(text: string, width: number): number {
  if (ASCII.test(text)) return Math.min(text.length, width)
  let end = 0
  let used = 0
  for (const letter of text) {
    used += widthOf(letter)
    if (used > width) break
    end += letter.length
  }
  return end
}
