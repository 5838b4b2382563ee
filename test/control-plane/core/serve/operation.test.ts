import type { TSchema } from 'typebox';
import { expectTypeOf, test } from 'vitest';
import type { NeedsOf, Operation } from '../../../../control-plane/core/serve/operation.ts';
import type { operations } from '../../../../control-plane/operations.ts';
import type { makeParts } from '../../../../control-plane/parts.ts';
import type { operationsV2 } from '../../../../control-plane/unkey-v2/index.ts';

type Needing<Needs> = Operation<string, TSchema, TSchema, Needs>;

test('what operations need is all that each of them names, and a control plane has it', () => {
  expectTypeOf<NeedsOf<[Needing<{ one: 1 }>, Needing<{ two: 2 }>, Needing<unknown>]>>().toEqualTypeOf<
    { one: 1 } & { two: 2 }
  >();
  type Parts = ReturnType<typeof makeParts>;
  expectTypeOf<Parts>().toExtend<NeedsOf<typeof operations>>();
  expectTypeOf<Parts>().toExtend<NeedsOf<typeof operationsV2>>();
  // A need that nobody gives does not compile.
  expectTypeOf<Parts>().not.toExtend<NeedsOf<[...typeof operations, Needing<{ nobodyGives: 1 }>]>>();
});
