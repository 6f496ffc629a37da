/** What the search looks through: one entry for each heading, with the text below it. */

const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"' }

const textOf = (html) =>
  html
    // Words and the signs behind them stay together.
    .replaceAll(/<\/?(?:a|code|em|strong|span)\b[^>]*>/g, '')
    .replaceAll(/<[^>]*>/g, ' ')
    .replaceAll(/&(amp|lt|gt|quot);/g, (_, name) => ENTITIES[name])
    .replaceAll(/\s+/g, ' ')
    .trim()

/** Pages are pairs of an address and its HTML. Entries: `[address, page title, heading, text]`. */
export function indexOf(pages) {
  return pages.flatMap(([address, html]) => {
    const body = /<article[^>]*>([\s\S]*)<\/article>/.exec(html)?.[1] ?? ''
    const title = textOf(/<h1[^>]*>([\s\S]*?)<\/h1>/.exec(body)?.[1] ?? '')
    return body
      .split(/(?=<h[123] id=)/)
      .filter((part) => part.startsWith('<h'))
      .map((part) => {
        const [, id = '', heading = ''] = /^<h[123] id="([^"]*)"[^>]*>([\s\S]*?)<\/h/.exec(part) ?? []
        return [`${address}#${id}`, title, textOf(heading), textOf(part.slice(part.indexOf('</h') + 5))]
      })
  })
}
