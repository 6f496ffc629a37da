/** Requests that say more than they send. */

export const rows = [
  {
    attack: 'a tensor of 2^62 elements in a few bytes of JSON',
    limit: 'Sizes are computed with overflow checks (`tensor::element_count`) and compared with the received bytes.',
    async run(t) {
      const body = JSON.stringify({
        inputs: [{ name: 'INPUT0', shape: [2 ** 31, 2 ** 31], datatype: 'FP32', data: [1] }],
      })
      const answer = await t.post('/v2/models/identity_fp32/infer', body)
      t.check(answer.status === 400, `status ${answer.status}`)
      return `status ${answer.status}`
    },
  },
]
