import { useRef, useState } from 'preact/hooks';

const SAID_MS = 2000;

/** An id with a button that copies it; with `unseen`, only the button. */
export function CopyId({ id, of, unseen = false }: { id: string; of: string; unseen?: boolean }) {
  const [message, setMessage] = useState('');
  const code = useRef<HTMLElement>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(id);
      setMessage('Copied');
    } catch {
      // The clipboard needs HTTPS and permission.
      if (code.current) getSelection()?.selectAllChildren(code.current);
      setMessage('Selected');
    }
    setTimeout(() => setMessage(''), SAID_MS);
  };
  return (
    <span class={`copy ${unseen ? 'unseen-id' : ''}`}>
      <code ref={code} class={unseen ? 'unseen' : ''}>
        {id}
      </code>{' '}
      <button
        type="button"
        class="small"
        title={id}
        aria-label={`Copy the id of ${of}`}
        onClick={() => void copy()}
      >
        {message || 'Copy'}
      </button>
    </span>
  );
}
