"""The report of a job: its contents (`ReportData`), its figures and the page."""
