/** The page of browsers at `/`, `/docs` and `/console`: a shell of HTML, and the generated files that fill it. */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../../native/locate.js'

/** Holds nothing of the server, so it needs no key; style and script come from files (Content-Security-Policy). */
export const SHELL = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Nereid</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/app/console.css">
<script src="/app/console.js" defer></script>
</head>
<body>
<div id="app"><main><h1>Nereid</h1><p>This page needs JavaScript. All that it shows comes from the API that
<a href="/v2/openapi.json">/v2/openapi.json</a> describes.</p></main></div>
</body>
</html>
`

/** The text of `console.js` or `console.css`; sources and package have them at the same place. */
export const appFile = (name: 'console.js' | 'console.css'): string =>
  readFileSync(join(ROOT, 'src/api/pages/generated', name), 'utf8')
