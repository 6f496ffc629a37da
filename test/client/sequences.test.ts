/** Concurrent requests of sequences on gRPC streams reach the last step of an ensemble in order. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { inOrder } from '../heavy/sequences.mjs'

const REQUESTS = process.env['NEREID_NIGHTLY'] === undefined ? 8000 : 20_000

// Before order was kept, one of 700 sequences was out of order.
test(
  'requests of sequences go through an ensemble in order, beside three busy loops',
  { timeout: 120_000 },
  async () => {
    const directory = mkdtempSync(join(tmpdir(), 'nereid-sequences-'))
    try {
      const { requests, wrong } = await inOrder(directory, REQUESTS, 3)
      expect(wrong).toEqual([])
      expect(requests).toBeGreaterThanOrEqual(REQUESTS)
    } finally {
      rmSync(directory, { recursive: true })
    }
  },
)
