import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // The native module keeps state per process, and a crash in it must be seen as one file's failure.
    pool: 'forks',
    // Tests that start servers measure time; more than two at once would measure each other.
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
})
