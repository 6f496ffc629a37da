/** How many columns of a terminal a text takes. Pure; control characters are escaped before, and sequences that colour are of no width. */

import { stripVTControlCharacters } from 'node:util'

const ASCII = /^[\x20-\x7e]*$/
/** Marks that stand on the letter before them, joiners, and what chooses the form of an emoji. */
const NONE = /[\p{Mn}\p{Me}\u200b-\u200d\u2060\ufeff]/u
/** East Asian letters and signs, and emoji. */
const WIDE = /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97c\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}/u

export function textWidth(text: string): number {
  const bare = stripVTControlCharacters(text)
  return ASCII.test(bare) ? bare.length : [...bare].reduce((sum, letter) => sum + widthOf(letter), 0)
}

const widthOf = (letter: string): number => (NONE.test(letter) ? 0 : WIDE.test(letter) ? 2 : 1)

/** Where the part of a text ends that takes at most `width` columns; no character is cut in half. */
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
