/** Replaces generated parts of pages, between marks that name the program. */

/** The text with a part between its marks. @throws {Error} without the marks */
export function withPart(text, program, part) {
  const [beginMark, endMark] = ['begin', 'end'].map((which) => `<!-- written by ${program}: ${which} -->`)
  const [begin, end] = [text.indexOf(beginMark), text.indexOf(endMark)]
  if (begin < 0 || end < begin) throw new Error(`there is no part between '${beginMark}' and '${endMark}'`)
  return `${text.slice(0, begin + beginMark.length)}\n\n${part}\n\n${text.slice(end)}`
}
