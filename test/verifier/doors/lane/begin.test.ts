import { expect, test } from 'vitest';
import { presenterOf, UNKNOWN_PRESENTER } from '../../../../shared/rules/presenter.ts';
import { LaneRequest } from '../../../../verifier/doors/lane/questions.ts';

/** The scan of a head resets the head; each request sets how it is answered; addresses count only with `headBytes`. */
const STAYING = ['head', 'replies', 'clientIps', 'tags', 'isRecheck'];

test('a request begins without what was before', () => {
  const request = new LaneRequest();
  for (const name of Object.keys(request))
    if (!STAYING.includes(name)) Object.assign(request, { [name]: 'before' });
  Object.assign(request, { inBody: { clientIp: '192.0.2.1', origin: 'https://a.example' } });
  request.begin();
  expect(request).toEqual(new LaneRequest());
  expect(presenterOf(request.presenter)).toEqual(UNKNOWN_PRESENTER);
});

test('the question that goes on keeps its presenter', () => {
  const request = new LaneRequest();
  request.inBody.clientIp = '192.0.2.1';
  const question = request.asQuestion();
  request.begin();
  expect(question.presenter).toEqual({ clientIp: '192.0.2.1', origin: undefined });
});
