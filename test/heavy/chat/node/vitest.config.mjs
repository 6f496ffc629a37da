export default { test: { include: ['*.check.mjs'], testTimeout: 30_000 } }
