/**
 * Converts the Markdown of the repository to HTML: headings with GitHub's anchors, links between published pages, code
 * with colours.
 */
import { existsSync } from 'node:fs'
import { join, posix } from 'node:path'
import hljs from 'highlight.js/lib/core'
import bash from 'highlight.js/lib/languages/bash'
import dockerfile from 'highlight.js/lib/languages/dockerfile'
import ini from 'highlight.js/lib/languages/ini'
import javascript from 'highlight.js/lib/languages/javascript'
import json from 'highlight.js/lib/languages/json'
import python from 'highlight.js/lib/languages/python'
import rust from 'highlight.js/lib/languages/rust'
import typescript from 'highlight.js/lib/languages/typescript'
import yaml from 'highlight.js/lib/languages/yaml'
import MarkdownIt from 'markdown-it'

/** The text form of protocol buffers, which `config.pbtxt` is written in. */
const pbtxt = () => ({
  name: 'pbtxt',
  keywords: { literal: 'true false' },
  contains: [
    { scope: 'comment', begin: '#', end: '$' },
    { scope: 'string', begin: '"', end: '"' },
    { scope: 'attr', begin: /[a-z_0-9]+(?=\s*[:[{<])/ },
    { scope: 'literal', begin: /\b[A-Z][A-Z_0-9]+\b/ },
    { scope: 'number', begin: /-?\b\d+(\.\d+)?\b/ },
  ],
})

const LANGUAGES = { bash, dockerfile, ini, javascript, json, python, rust, typescript, yaml, pbtxt }
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language)
hljs.registerAliases(['sh', 'console'], { languageName: 'bash' })

/** The anchor that GitHub gives a heading, so that a link works both on GitHub and in these pages. */
export function slug(text) {
  return text
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\p{M}\s_-]/gu, '')
    .replaceAll(/\s/g, '-')
}

const plain = (inline) =>
  (inline.children ?? [])
    .filter((t) => t.type === 'text' || t.type === 'code_inline')
    .map((t) => t.content)
    .join('')

/** The address of a page, of the README of a folder, or of a copy of the file. */
function addressOf(target, { addresses, files }) {
  return addresses.get(target) ?? addresses.get(`${target}/README.md`) ?? files.address(target)
}

/** The address that a link of `source` becomes, or null for a file that has no copy. */
function resolved(href, { source, address: here }, site) {
  if (/^[a-z]+:/.test(href) || href.startsWith('#')) return href
  const [path, anchor] = href.split('#')
  const target = posix.join(posix.dirname(source), decodeURI(path)).replace(/\/$/, '')
  if (!existsSync(join(site.root, target))) {
    // A template has links that work where it is written to.
    if (here.startsWith('files/')) return null
    throw new Error(`${source}: ${href} leads nowhere`)
  }
  const address = addressOf(target, site)
  if (address === null) return null
  const relative = posix.relative(posix.dirname(here), address)
  return anchor === undefined ? relative : `${relative}#${anchor}`
}

/** The path of the repository that code in a text names, or null. Other pages' words, such as `simple`, are none. */
function pathOf(code, { files }) {
  const path = code.replace(/\/$/, '')
  return (path.includes('/') || /^[A-Z]+\.md$/.test(path)) && files.has(path) ? path : null
}

/** Links from paths in backticks, except in headings and in other links. */
function linkPaths(tokens, env, site) {
  for (const [at, inline] of tokens.entries()) {
    if (inline.type !== 'inline' || tokens[at - 1].type === 'heading_open') continue
    let depth = 0
    inline.children = inline.children.flatMap((token) => {
      if (token.type === 'link_open') depth += 1
      if (token.type === 'link_close') depth -= 1
      const path = token.type === 'code_inline' && depth === 0 ? pathOf(token.content, site) : null
      const address = path === null ? null : addressOf(path, site)
      if (address === null || address === env.address) return [token]
      const open = new token.constructor('link_open', 'a', 1)
      open.attrs = [['href', posix.relative(posix.dirname(env.address), address)]]
      return [open, token, new token.constructor('link_close', 'a', -1)]
    })
  }
}

/** `site` has the root of the repository, the addresses of pages, and the files that have copies. */
export function markdown(site) {
  const md = new MarkdownIt({
    html: true,
    highlight: (code, language) =>
      hljs.getLanguage(language) === undefined ? '' : hljs.highlight(code, { language }).value,
  })

  md.core.ruler.push('anchors', ({ tokens }) => {
    const used = new Map()
    for (const [at, token] of tokens.entries()) {
      if (token.type !== 'heading_open') continue
      const name = slug(plain(tokens[at + 1]))
      const before = used.get(name) ?? 0
      used.set(name, before + 1)
      token.attrSet('id', before === 0 ? name : `${name}-${before}`)
    }
  })

  // A row about a flag, an option or a metric can be linked to, and found.
  md.core.ruler.push('rows', ({ tokens }) => {
    const used = new Set(tokens.filter(({ type }) => type === 'heading_open').map((token) => token.attrGet('id')))
    for (const [at, token] of tokens.entries()) {
      if (token.type !== 'tr_open' || tokens[at + 1]?.type !== 'td_open') continue
      const first = tokens[at + 2]?.children?.[0]
      const code = first?.type === 'code_inline' ? first.content : ''
      const name = /^(?:--)?([a-z][\w-]{3,})(?:=|$)/.exec(code)?.[1]
      if (name === undefined || used.has(name)) continue
      used.add(name)
      token.attrSet('id', name)
    }
  })

  md.core.ruler.push('links', ({ tokens, env }) => {
    for (const { children } of tokens) {
      const hidden = []
      for (const token of children ?? []) {
        if (token.type === 'link_open') {
          const href = resolved(token.attrGet('href'), env, site)
          hidden.push(href === null)
          if (href === null) token.tag = 'span'
          else token.attrSet('href', href)
          if (href === null) token.attrs = [['class', 'file']]
        } else if (token.type === 'link_close' && hidden.pop() === true) token.tag = 'span'
        else if (token.type === 'image') {
          // Pictures are at the root of the site.
          token.attrSet('src', posix.relative(posix.dirname(env.address), posix.basename(token.attrGet('src'))))
        }
      }
    }
    if (env.unlinked !== true) linkPaths(tokens, env, site)
  })

  // Wide tables scroll by themselves: a page must not be wider than a phone.
  md.renderer.rules.table_open = () => '<div class="table"><table>\n'
  md.renderer.rules.table_close = () => '</table></div>\n'
  const { fence } = md.renderer.rules
  // Comments that say how an example is tested are for the test, not for readers.
  md.renderer.rules.html_block = (tokens, at) => tokens[at].content.replaceAll(/<!--[\s\S]*?-->\n?/g, '')
  md.renderer.rules.fence = (tokens, at, ...rest) => `<div class="code">${fence(tokens, at, ...rest)}</div>\n`
  return md
}
