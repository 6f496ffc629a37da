/* Search, light and dark, and the list of pages on a phone. Pages are complete without this script. */
const root = document.documentElement
const up = root.dataset.up

document.querySelector('.theme').addEventListener('click', () => {
  const dark =
    root.dataset.theme === undefined
      ? matchMedia('(prefers-color-scheme: dark)').matches
      : root.dataset.theme === 'dark'
  root.dataset.theme = dark ? 'light' : 'dark'
  try {
    localStorage.setItem('nereid-theme', root.dataset.theme)
  } catch {
    // Without storage the choice applies to this page only.
  }
})

const menu = document.querySelector('.menu')
function unfold(open) {
  document.body.classList.toggle('open', open)
  menu.setAttribute('aria-expanded', String(open))
}
menu.addEventListener('click', () => unfold(!document.body.classList.contains('open')))

/**
 * Copies the text of a node. Scripts have no clipboard without a secure origin (pages from a disk, or over plain HTTP),
 * so the text is then selected and copied with the command of the browser.
 */
async function copy(node) {
  if (navigator.clipboard !== undefined) {
    try {
      return await navigator.clipboard.writeText(node.textContent)
    } catch {
      // The clipboard is forbidden here: use the command below.
    }
  }
  const selection = getSelection()
  selection.selectAllChildren(node)
  const copied = document.execCommand('copy')
  if (!copied) throw new Error('this browser does not copy')
  selection.removeAllRanges()
}

for (const code of document.querySelectorAll('.code')) {
  const button = document.createElement('button')
  button.type = 'button'
  button.textContent = 'Copy'
  button.addEventListener('click', async () => {
    // Text that could not be copied stays selected, so that the user can copy it.
    button.textContent = await copy(code.querySelector('code')).then(() => 'Copied', () => 'Selected')
    setTimeout(() => (button.textContent = 'Copy'), 1500)
  })
  code.append(button)
}

const field = document.querySelector('.search input')
const list = document.querySelector('.search ol')
const RESULTS_MAX = 12
const ranking = window.NEREID_RANK
let loading = null

/** The index is larger than most pages, so it is read when somebody searches. */
function load() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement('script')
    script.src = `${up}search-index.js`
    script.addEventListener('load', () => resolve(window.NEREID_SEARCH))
    script.addEventListener('error', reject)
    document.head.append(script)
  })
  return loading
}

function excerpt(text, words) {
  const found = words.map((word) => text.toLowerCase().indexOf(word)).filter((i) => i >= 0)
  const at = Math.max(0, Math.min(...found, text.length) - 40)
  return `${at > 0 ? '… ' : ''}${text.slice(at, at + 130)}`
}

function show(entries, words) {
  list.replaceChildren(
    ...entries.map(([address, title, heading, text]) => {
      const item = document.createElement('li')
      const link = document.createElement('a')
      link.href = up + address
      const name = document.createElement('strong')
      name.textContent = heading === title ? title : `${title}: ${heading}`
      const preview = document.createElement('span')
      preview.textContent = excerpt(text, words)
      link.append(name, preview)
      item.append(link)
      return item
    }),
  )
  if (entries.length === 0) list.textContent = 'Nothing has all of these words.'
  list.dataset.words = words.join(' ')
  list.hidden = false
}

async function search() {
  const text = field.value
  if (ranking.wordsOf(text).length === 0) return (list.hidden = true)
  const found = ranking.rank(await load(), text)
  // Somebody who typed on while the index came sees the results of the last text.
  if (text === field.value) show(found.slice(0, RESULTS_MAX), ranking.wordsOf(text))
}

field.addEventListener('focus', () => load())
field.addEventListener('input', search)
field.addEventListener('keydown', (event) => {
  if (event.key === 'Enter') list.querySelector('a')?.click()
  if (event.key === 'ArrowDown') list.querySelector('a')?.focus()
})
list.addEventListener('keydown', (event) => {
  const links = [...list.querySelectorAll('a')]
  const at = links.indexOf(document.activeElement)
  if (event.key === 'ArrowDown') links[at + 1]?.focus()
  if (event.key === 'ArrowUp') (links[at - 1] ?? field).focus()
})
document.addEventListener('keydown', (event) => {
  const writing = /^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName ?? '')
  if (event.key === '/' && !writing) {
    event.preventDefault()
    field.focus()
  }
  if (event.key === 'Escape') {
    list.hidden = true
    field.blur()
    unfold(false)
  }
})
document.addEventListener('click', (event) => {
  if (!event.target.closest('.search')) list.hidden = true
  if (!event.target.closest('.menu, .pages')) unfold(false)
})
