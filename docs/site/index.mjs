/** Makes the index of the search: an entry for each heading, with the text below it, and for each named table row. */

const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"' }

const textOf = (html) =>
  html
    // Words and the signs behind them stay together.
    .replaceAll(/<\/?(?:a|code|em|strong|span)\b[^>]*>/g, '')
    .replaceAll(/<[^>]*>/g, ' ')
    .replaceAll(/&(amp|lt|gt|quot);/g, (_, name) => ENTITIES[name])
    .replaceAll(/\s+/g, ' ')
    .trim()

/** A row about one flag, option or metric is an entry of its own. */
const NAMED_ROW = /<tr id="([^"]*)">([\s\S]*?)<\/tr>/g

/**
 * Entries of the index, `[address, page title, heading, text, aliases]`. A page is an address, a title that is used if
 * the HTML has none, HTML, and the aliases, which its first entry has.
 */
export function indexOf(pages) {
  return pages.flatMap(([address, name, html, aliases]) => {
    const body = /<article[^>]*>([\s\S]*)<\/article>/.exec(html)?.[1] ?? ''
    const title = textOf(/<h1[^>]*>([\s\S]*?)<\/h1>/.exec(body)?.[1] ?? '') || name
    const sections = body
      .split(/(?=<h[123] id=)/)
      .filter((part) => part.startsWith('<h'))
      .map((part, at) => {
        const [, id = '', heading = ''] = /^<h[123] id="([^"]*)"[^>]*>([\s\S]*?)<\/h/.exec(part) ?? []
        const below = part.slice(part.indexOf('</h') + 5).replaceAll(NAMED_ROW, '')
        return [`${address}#${id}`, title, textOf(heading), textOf(below), at === 0 ? aliases : '']
      })
    const rows = [...body.matchAll(NAMED_ROW)].map(([, id, cells]) => {
      const [name = '', ...rest] = cells.split('</td>').map(textOf)
      return [`${address}#${id}`, title, name, rest.join(' ').trim(), '']
    })
    return [...sections, ...rows]
  })
}
