"""What is counted, and how it is shown: metrics listen to events and notices, and nothing else counts.

The tour: the runtime gives every live event to `Recorder.event` at its append and every notice to `Recorder.notice`;
both look up the type in one table and count. What is a level rather than a count (sessions, mailboxes) is asked for by
`Collector` when somebody looks. `Exposition` turns the registry into text without stalling a loop, and `serve_metrics`
puts that text on a port. Label values come from closed sets, so no input can make series without end. The folder
`dashboards` holds a Grafana dashboard and alert rules for what is counted here.

Read in this order:

labels      closed label sets
families    the metrics of one registry, and how many series they can make
collector   levels, asked for at scrape time
plugged     what the events of plugins count: plan mode, questions, approvals, reminders, goals
recorder    event type -> what it counts
spans       events -> spans, as OpenTelemetry names them
render      registry -> cached text, piece by piece
serve       the text at /metrics, in threads of its own
"""
