/** The frame of every page: navigation, search, the text, what is on the page, and the way on. */
import { posix } from 'node:path'

const escaped = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;')

function navigationOf({ navigation, address, to }) {
  return navigation
    .map(({ title, pages }) => {
      const items = pages.map((page) => {
        const current = page.address === address ? ' aria-current="page"' : ''
        return `<li><a href="${to(page.address)}"${current}>${escaped(page.name)}</a></li>`
      })
      return `${title === '' ? '' : `<h2>${title}</h2>`}<ul>${items.join('')}</ul>`
    })
    .join('\n')
}

function outlineOf(content) {
  const found = [...content.matchAll(/<h([23]) id="([^"]*)">([\s\S]*?)<\/h/g)]
  if (found.length < 3) return ''
  const items = found.map(([, level, id, html]) => {
    const text = html.replaceAll(/<\/?a[^>]*>/g, '')
    return `<li class="l${level}"><a href="#${id}">${text}</a></li>`
  })
  return `<nav class="outline" aria-label="On this page"><ul>${items.join('')}</ul></nav>`
}

/** The sources of this page. Without an address in package.json there is no link to a repository. */
function originOf({ repository, version, source, address }) {
  const text = `Version ${version} · ${escaped(source)}`
  if (repository === null) return text
  const web = repository.replace(/^git\+/, '').replace(/\.git$/, '')
  const edit = address.startsWith('files/') ? '' : ` · <a href="${web}/edit/main/${source}">Edit this page</a>`
  return `<a href="${web}">Version ${version}</a> · <a href="${web}/blob/v${version}/${source}">${source}</a>${edit}`
}

export default function page(data) {
  const { content, title, address, previous, next } = data
  const to = (target) => posix.relative(posix.dirname(address), target)
  const up = to('x').slice(0, -1)
  const turn = (one, rel) =>
    one === null ? '<span></span>' : `<a rel="${rel}" href="${to(one.address)}">${escaped(one.name)}</a>`
  const [first] = data.navigation[0].pages
  return `<!doctype html>
<html lang="en" data-up="${up}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(address === first.address ? title : `${title} – Nereid`)}</title>
<link rel="icon" href="${up}icon.svg">
<link rel="stylesheet" href="${up}style.css">
<script src="${up}theme.js"></script>
</head>
<body>
<a class="skip" href="#the-text">To the text</a>
<header>
<a class="brand" href="${to(first.address)}"><img src="${up}icon.svg" alt="" width="22" height="22">Nereid</a>
<div class="search" role="search">
<input type="search" placeholder="Search" aria-label="Search" autocomplete="off" spellcheck="false"><ol hidden></ol>
</div>
<button class="theme" type="button" aria-label="Light or dark">◐</button>
<button class="menu" type="button" aria-expanded="false" aria-controls="the-pages">Pages</button>
</header>
<div class="frame">
<nav id="the-pages" class="pages" aria-label="Pages">${navigationOf({ ...data, to })}</nav>
<main id="the-text"><article>
${content}</article>
<footer>${turn(previous, 'prev')}${turn(next, 'next')}</footer>
<p class="origin">${originOf(data)}</p></main>
${outlineOf(content)}
</div>
<script src="${up}rank.js"></script>
<script src="${up}page.js"></script>
</body>
</html>
`
}
