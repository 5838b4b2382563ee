import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { call, type Key } from '../api/client.ts';
import { ActionForm, Field, type FormEntry } from '../forms/forms.tsx';
import { Badge } from '../parts/badge.tsx';
import { Table } from '../parts/table.tsx';

export type Explanation = Awaited<ReturnType<typeof explain>>;

/** A form that asks how a question about a key would be decided, and the rules one by one. */
export function Explain({ of }: { of: Key }) {
  const [explanation, setExplanation] = useState<Explanation>();
  const run = async (entry: FormEntry) => {
    setExplanation(await explain(of, entry));
    return undefined;
  };
  return (
    <>
      <ActionForm isQuestion label="Explain a question" action="Explain" run={run} message="">
        <Field label="Permissions" hint="such as files.read AND files.write" name="permissions" />
        <Field label="Client's address" hint="for a key with allowed addresses" name="clientIp" />
        <Field label="Web page's origin" hint="for a key with allowed origins" name="origin" />
        <Field label="Cost" hint="in credits; empty = 1" name="cost" inputMode="numeric" pattern="\d{1,9}" />
      </ActionForm>
      {explanation && <Explained of={explanation} />}
    </>
  );
}

/** A decision, and its rules one by one. */
export function Explained({ of, children }: { of: Explanation; children?: ComponentChildren }) {
  return (
    <>
      <p role="status">
        {children}
        <Badge kind={of.valid ? 'good' : 'bad'}>{of.code}</Badge>{' '}
        {of.rules.find(({ passed }) => !passed)?.detail} Nothing was consumed.
      </p>
      <Table
        label="Rules"
        rows={of.rules}
        id={({ rule, detail }) => `${rule} ${detail}`}
        empty=""
        columns={[
          { title: 'Rule', narrow: 'first', cell: ({ rule }) => rule },
          {
            title: 'Result',
            narrow: 'beside',
            cell: ({ passed }) => (
              <Badge kind={passed ? 'good' : 'bad'}>{passed ? 'passed' : 'failed'}</Badge>
            ),
          },
          { title: 'Why', cell: ({ detail }) => <bdi>{detail}</bdi> },
        ]}
      />
    </>
  );
}

function explain({ keyId, apiId }: Key, entry: FormEntry) {
  const [permissions, cost] = [entry('permissions'), entry('cost')];
  const [clientIp, origin] = [entry('clientIp'), entry('origin')];
  return call('keys.explain', {
    ...{ keyId, apiId },
    ...(permissions === '' ? {} : { permissions }),
    ...(clientIp === '' ? {} : { clientIp }),
    ...(origin === '' ? {} : { origin }),
    ...(cost === '' ? {} : { cost: Number(cost) }),
  });
}
