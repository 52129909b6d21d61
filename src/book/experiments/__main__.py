from book.experiments.runs import main

raise SystemExit(main())
