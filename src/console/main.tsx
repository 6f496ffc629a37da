/** The page at `/`, `/docs` and `/console`: one script and one style, and a view for each path. */

import { render } from 'preact'
import { Api } from './api.js'
import { ConsoleView } from './console/console.js'
import { DocsView } from './docs/docs.js'
import { HomeView } from './home/home.js'
import { Shell } from './shell.js'

const VIEWS = [
  { path: '/', title: 'Server', View: HomeView },
  { path: '/console', title: 'Console', View: ConsoleView },
  { path: '/docs', title: 'HTTP API', View: DocsView },
]

const path = location.pathname.replace(/(?<=.)\/$/, '')
const { title, View } = VIEWS.find((one) => one.path === path) ?? VIEWS[0] ?? { title: '', View: HomeView }
const api = new Api()
const root = document.getElementById('app')
if (root !== null) {
  document.title = `${title} · Nereid`
  root.replaceChildren()
  render(<Shell views={VIEWS} path={path}><View api={api} /></Shell>, root)
}
